"""Headers read and written like earlier ones: byte templates, never different from the full way."""

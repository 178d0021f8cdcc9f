"""How it travels: HTTP(S), SMTP, FTP, a broker; each says whether it can answer at once."""

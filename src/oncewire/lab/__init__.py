"""The laboratory: how the product is tried, measured and shown. The product never imports it."""

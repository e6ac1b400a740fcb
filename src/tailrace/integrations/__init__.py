"""One folder for each chat platform, protocol and store. No other room imports them."""

"""Files beneath one directory: opening, reading, replacing and decoding them."""

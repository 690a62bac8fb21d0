"""Small parts that several models share."""

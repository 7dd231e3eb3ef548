"""Wrong servers and wrong libraries: each does one thing otherwise, and the suite must notice."""

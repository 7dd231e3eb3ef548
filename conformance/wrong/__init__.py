"""Wrong servers and wrong libraries. Each does one thing wrongly, and the suite must notice it."""

"""Plays the scenarios of this folder against servers and against client libraries."""

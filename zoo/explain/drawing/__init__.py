"""Sheets and pages of explanations; the only part of the room that draws."""

"""The one trainer: a Lightning system for any classifier, its optimization, and the folder a run leaves behind."""

"""What trained weights are worth and what they cost: accuracy, calibration, size, time and memory."""

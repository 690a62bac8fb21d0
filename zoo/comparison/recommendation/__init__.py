"""SE, CBAM or nothing for one's own images: measures of the data, paired short runs, a sequential rule, a report."""

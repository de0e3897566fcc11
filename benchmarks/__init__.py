"""Speed, proved against the peers in one run: medians, spread and ratios, never a timed test."""

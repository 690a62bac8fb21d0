"""Kernels in Triton and what launches them: the only room that imports Triton, and itself imported when first used."""

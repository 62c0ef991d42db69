"""What is checked and timed on a GPU in a few minutes: equality with the CPU, waits, repeatability, times, memory."""

"""Times this machine on named workloads and compares with a usual research loop and with the arithmetic alone."""

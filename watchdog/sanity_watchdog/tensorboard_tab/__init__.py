"""The Watchdog tab of TensorBoard. Needs TensorBoard; imports neither torch nor Lightning."""

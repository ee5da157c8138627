"""Policy files written: the starter, and one layout for all."""

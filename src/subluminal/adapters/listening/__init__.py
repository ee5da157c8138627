"""What every door that listens on an address stands on: who may come in, whose run it is, the process itself."""

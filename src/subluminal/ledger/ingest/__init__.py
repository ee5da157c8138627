"""The way of events from journals into the store, and the last words of producers that were killed."""

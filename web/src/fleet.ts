// Whose record is shown: this machine's, or that of a fleet. What only a machine knows of itself is not shown over a fleet.
import { signal } from "@preact/signals";
import { quoted } from "./text";

/** The address of the collector; empty: it is this machine's record. */
export const fleet = signal("");

/** A command that asks the same record. */
export const asking = (command: string): string => (fleet.value ? `${command} --fleet ${quoted(fleet.value)}` : command);

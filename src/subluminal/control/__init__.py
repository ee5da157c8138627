"""The control loop: from what agents did to a better policy. Values in and out; nothing is drawn here."""

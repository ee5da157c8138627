"""What servers say, on this machine: what is known of it (`known`), what was approved (`locks`), who lists what in a
run (`run_names`). What it means is `surface`'s."""

"""The command line, one file a subcommand. Built on argparse; modules load when they are used."""

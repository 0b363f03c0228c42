"""What a watch does about a finding: send it to a URL, run a command, stop the job."""

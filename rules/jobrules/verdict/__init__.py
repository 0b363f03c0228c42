"""The verdict: lost time by cause, findings joined and ranked, phases of the job."""

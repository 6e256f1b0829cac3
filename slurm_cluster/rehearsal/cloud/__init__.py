"""The emulated AWS of a rehearsal: ministack, the real CDK CLI, and what both need to deploy the synthesized app."""

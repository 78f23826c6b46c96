"""Makes this folder importable: `import oracle`."""

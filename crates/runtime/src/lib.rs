//! Devices, specialization and launch.

//! Assembles Penstock's gateway and movers into one program: serve, gateway, mover, admin, demo.

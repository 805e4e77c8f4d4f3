// A library with one function, which tests load in a sandbox.
extern "C" int djinn_late() { return 17; }

// Operators with which djinn's Python code saves and restores the states of
// default generators without reading them from a worker:
//
// * djinn_random::save(int[] devices) -> Tensor[] returns what the default
//   generators of the devices continue from.
// * djinn_random::restore(Tensor[] saved, int[] devices) -> () lets them
//   continue from there.
//
// A state that only the worker knows stays there, as a tensor on the device.
#ifndef CLIENT_LIB_CAPTURE_REGISTRATION_GENERATOR_STATES_H_
#define CLIENT_LIB_CAPTURE_REGISTRATION_GENERATOR_STATES_H_

namespace djinn::capture {

// Defines the operators, and those that are sent (generator_operators.h).
// Called once per process.
void RegisterGeneratorStates();

}  // namespace djinn::capture

#endif  // CLIENT_LIB_CAPTURE_REGISTRATION_GENERATOR_STATES_H_

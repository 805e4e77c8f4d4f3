// Formats messages for other programs: JSON and YAML, with the fields' names as
// in the protos. Fields without a value are included, unless they are messages
// or optional. 64-bit integers are strings in JSON, as in protobuf, and numbers
// in YAML.
#ifndef COORDINATOR_CTL_OUTPUT_H_
#define COORDINATOR_CTL_OUTPUT_H_

#include <string>

#include "google/protobuf/message.h"

namespace djinn::ctl {

std::string ToJson(const google::protobuf::Message& message);
// Uses block style, with strings in double quotes.
std::string ToYaml(const google::protobuf::Message& message);

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_OUTPUT_H_

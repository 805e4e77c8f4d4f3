// Enumerators of the protos as people write them: "llm_decode".
#ifndef COORDINATOR_CTL_NAMES_H_
#define COORDINATOR_CTL_NAMES_H_

#include <string>

#include "djinn/v1/notes.pb.h"
#include "djinn/v1/semantics.pb.h"
#include "djinn/v1/srg.pb.h"

namespace djinn::ctl {

// A dash for what is not specified; the number of what this build does not
// know.
std::string Name(v1::Phase phase);
std::string Name(v1::Modality modality);
std::string Name(v1::Residency residency);
std::string Name(v1::WorkloadClass workload_class);
std::string Name(v1::TaskType task_type);

// "float32[2,3]".
std::string DescribeShape(
    v1::DataType data_type,
    const google::protobuf::RepeatedField<int64_t>& sizes);

// "1.5M".
std::string FormatCount(uint64_t count);

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_NAMES_H_

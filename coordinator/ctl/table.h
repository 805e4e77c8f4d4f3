// Lays rows out in columns, as kubectl does, and formats the values in them.
#ifndef COORDINATOR_CTL_TABLE_H_
#define COORDINATOR_CTL_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "djinn/v1/admin.pb.h"
#include "djinn/v1/notes.pb.h"
#include "djinn/v1/semantics.pb.h"
#include "djinn/v1/srg.pb.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"

namespace djinn::ctl {

using Row = std::vector<std::string>;

// Returns columns two spaces apart, each as wide as its widest cell. The first
// row is the header. All rows must have equally many cells.
std::string FormatTable(std::vector<Row> rows);

// Returns a size such as "90.9MB".
std::string FormatBytes(uint64_t bytes);
// Returns a duration such as "1.5s".
std::string FormatDuration(const google::protobuf::Duration& duration);
// Returns a time such as "2026-11-26T12:00:00+00:00".
std::string FormatTime(const google::protobuf::Timestamp& time);
// Returns the duration of a run, such as "12.3us", "1.61ms" or "1.611s".
std::string FormatShortDuration(const google::protobuf::Duration& duration);
// Returns the device's number such as "2", or "2.1" for its member 1.
std::string DeviceText(uint32_t virtual_device, uint32_t member);
// Returns the text, or a dash if it is empty.
std::string OrDash(std::string text);

// Returns "active", "stopped" or "drained".
std::string QueueState(bool stopped, const v1::QueueStop& stop);
// Counts the waiting requests by reason, such as "2 QUEUE_STOPPED, 1
// NO_CAPACITY".
std::string DescribeWaiting(const v1::QueueInfo& info);

// Describes the health of a GPU in one line, a failure first.
std::string DescribeGpu(const v1::GpuHealth& gpu);

// Return the header and the cells of each kind of object.
Row Header(const v1::WorkerInfo&);
Row Cells(const v1::WorkerInfo& info);
Row Header(const v1::SessionInfo&);
Row Cells(const v1::SessionInfo& info);
Row Header(const v1::TenantInfo&);
Row Cells(const v1::TenantInfo& info);
Row Header(const v1::LeaseInfo&);
Row Cells(const v1::LeaseInfo& info);
Row Header(const v1::GraphInfo&);
Row Cells(const v1::GraphInfo& info);
Row Header(const v1::QueueInfo&);
Row Cells(const v1::QueueInfo& info);

// Return the further columns of a wide table.
Row WideHeader(const v1::WorkerInfo&);
Row WideCells(const v1::WorkerInfo& info);
Row WideHeader(const v1::SessionInfo&);
Row WideCells(const v1::SessionInfo& info);
Row WideHeader(const v1::TenantInfo&);
Row WideCells(const v1::TenantInfo& info);
Row WideHeader(const v1::LeaseInfo&);
Row WideCells(const v1::LeaseInfo& info);
Row WideHeader(const v1::GraphInfo&);
Row WideCells(const v1::GraphInfo& info);
Row WideHeader(const v1::QueueInfo&);
Row WideCells(const v1::QueueInfo& info);

Row Header(const v1::RunInfo&);
Row Cells(const v1::RunInfo& info);

// Return an enumerator in lower case, without its prefix, such as "llm_decode".
// A dash stands for the unspecified one, a number for one that this build does
// not know.
std::string Name(v1::Phase phase);
std::string Name(v1::Modality modality);
std::string Name(v1::Residency residency);
std::string Name(v1::WorkloadClass workload_class);
std::string Name(v1::TaskType task_type);

// Returns a shape such as "float32[2,3]".
std::string DescribeShape(
    v1::DataType data_type,
    const google::protobuf::RepeatedField<int64_t>& sizes);

// Returns a count such as "1.5M".
std::string FormatCount(uint64_t count);

}  // namespace djinn::ctl

#endif  // COORDINATOR_CTL_TABLE_H_

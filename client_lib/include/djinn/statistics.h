// Counters of a session, for programs, benchmarks and tests.
#ifndef CLIENT_LIB_INCLUDE_DJINN_STATISTICS_H_
#define CLIENT_LIB_INCLUDE_DJINN_STATISTICS_H_

#include <cstdint>

namespace djinn {

// Counters since the session was opened. None of them ever decreases.
struct Statistics {
  // The number of captured operator calls. Views and other calls without a node
  // do not count.
  uint64_t calls = 0;
  // Calls for which the worker was asked for the results' shapes.
  uint64_t synchronous_calls = 0;
  // Runs that were sent, and graphs that were defined for them.
  uint64_t runs = 0;
  uint64_t graphs_defined = 0;
  // Graphs for which the worker already had a compiled plan.
  uint64_t plan_cache_hits = 0;
  uint64_t reads = 0;
  // Reads that this process answered itself, without asking the worker.
  uint64_t reads_answered_here = 0;
  // The numbers of uploads by their form: inside a message; as separate bytes;
  // and without bytes, because the worker already had them.
  uint64_t uploads_inline = 0;
  uint64_t uploads_sent = 0;
  uint64_t uploads_already_held = 0;
  // The number of uploads whose bytes this process could not keep for the loss
  // of a worker, and the bytes that it wrote to a temporary file for that.
  uint64_t uploads_not_kept = 0;
  uint64_t bytes_spilled = 0;
  // The number of values that were copied from one virtual device to another,
  // directly between workers.
  uint64_t device_copies = 0;
  // The number of values that a worker computed a second time instead of
  // fetching them from another worker of the same device, and the bytes that
  // were not transferred as a result.
  uint64_t values_rematerialized = 0;
  uint64_t bytes_not_fetched = 0;
  // The numbers of values that were fetched rather than computed a second time,
  // by reason: the value has no rematerialization plan, or the plan's inputs
  // are gone; the workers do not promise the same bits; the network or the
  // device has not been measured recently; computing would take as long as
  // fetching, or too much memory. Very small values do not count.
  uint64_t fetched_not_repeatable = 0;
  uint64_t fetched_other_bits = 0;
  uint64_t fetched_not_measured = 0;
  uint64_t fetched_not_worth_it = 0;
  // Bytes of messages and tensors, from this process to the workers and back.
  uint64_t bytes_up = 0;
  uint64_t bytes_down = 0;
  // The number of connections to workers that broke and were resumed, and the
  // bytes of the messages that were sent a second time.
  uint64_t resumes = 0;
  uint64_t bytes_resent = 0;
  // The number of lost workers whose devices went on at another worker, and of
  // the messages that were sent to that worker again.
  uint64_t recoveries = 0;
  uint64_t messages_replayed = 0;
  // The number of checkpoints, and the bytes that they read back.
  uint64_t checkpoints = 0;
  uint64_t checkpoint_bytes = 0;
  // gRPC connections to workers: created, reused from earlier sessions of this
  // process, closed because they were idle, and broken.
  uint64_t connections_created = 0;
  uint64_t connections_reused = 0;
  uint64_t connections_closed = 0;
  uint64_t connections_failed = 0;
  // Graphs that a worker asked for again.
  uint64_t needs_answered = 0;
  // Root errors that workers reported.
  uint64_t root_errors = 0;
};

}  // namespace djinn

#endif  // CLIENT_LIB_INCLUDE_DJINN_STATISTICS_H_

// What the client and the server of the raw socket baseline share.
//
// The client sends a RawRequest and waits for kReady; then the clock runs.
// Up: the client sends the bytes, the server copies them into fresh memory and
// sends kDone; the clock stops; the server checks the bytes and sends kDone
// again if they are Fill(seed). Down: the client sends kReady and copies the
// server's bytes, Fill(seed), into fresh memory; the clock stops.
#ifndef TESTS_BENCH_RAW_SOCKET_H_
#define TESTS_BENCH_RAW_SOCKET_H_

#include <cstddef>
#include <cstdint>

namespace djinn::bench {

struct RawRequest {
  uint64_t up = 0;  // 1: to the server; 0: from it.
  uint64_t size = 0;
  uint64_t seed = 0;
};

inline constexpr char kReady = 'r';
inline constexpr char kDone = 'd';
inline constexpr char kWrong = 'w';

// False when the peer is gone.
bool SendAll(int socket, const void* bytes, size_t size);
bool ReceiveAll(int socket, void* bytes, size_t size);

// Memory that no page stands behind yet. Null when there is none.
void* MapFresh(size_t size);
void Unmap(void* bytes, size_t size);

}  // namespace djinn::bench

#endif  // TESTS_BENCH_RAW_SOCKET_H_

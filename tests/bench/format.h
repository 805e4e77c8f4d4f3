// Quantities for people.
#ifndef TESTS_BENCH_FORMAT_H_
#define TESTS_BENCH_FORMAT_H_

#include <string>

namespace djinn::bench {

// Three digits and a fitting unit: "1.23 us", "456 ms".
std::string FormatSeconds(double seconds);

// "640 B", "1.50 MiB".
std::string FormatBytes(double bytes);

// "2.34 GB/s".
std::string FormatRate(double bytes, double seconds);

}  // namespace djinn::bench

#endif  // TESTS_BENCH_FORMAT_H_

#include "server/nbd/trace.hpp"

#include <fmt/format.h>

namespace gpunbd::server {

namespace {

// Tenths below a second, so that the column is wide enough for a quarter of an hour.
std::string us(std::uint64_t ns) {
    const double value = static_cast<double>(ns) / 1000;
    return ns < 1'000'000'000 ? fmt::format("{:.1f}", value) : fmt::format("{:.0f}", value);
}

template <typename Pick>
std::string row(const char* name, const char* meaning, const std::vector<const Trace*>& traces,
                Pick pick) {
    storage::Histogram all;
    for (const Trace* trace : traces) all.add(pick(*trace));
    return fmt::format("\n{:<9} {:>12} {:>9} {:>9} {:>9} {:>9}  {}", name, all.count(),
                       us(all.quantile(0.5)), us(all.quantile(0.9)), us(all.quantile(0.99)),
                       us(all.max()), meaning);
}

}  // namespace

std::string describe_traces(const std::vector<const Trace*>& traces) {
    return fmt::format("{:<9} {:>12} {:>9} {:>9} {:>9} {:>9}  {}", "stage", "count", "p50 us",
                       "p90 us", "p99 us", "max us", "waiting") +
           row("received", "behind others", traces,
               [](const Trace& trace) -> const auto& { return trace.received; }) +
           row("payload", "for its payload", traces,
               [](const Trace& trace) -> const auto& { return trace.payload; }) +
           row("queued", "to be submitted", traces,
               [](const Trace& trace) -> const auto& { return trace.channels.queued; }) +
           row("submitted", "for the device", traces,
               [](const Trace& trace) -> const auto& { return trace.channels.submitted; }) +
           row("sent", "for the socket", traces,
               [](const Trace& trace) -> const auto& { return trace.sent; }) +
           row("READ", "to be answered", traces,
               [](const Trace& trace) -> const auto& { return trace.read; }) +
           row("WRITE", "to be answered", traces,
               [](const Trace& trace) -> const auto& { return trace.write; });
}

}  // namespace gpunbd::server

#include "server/admin/api/ticks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "server/admin/api/encoding.hpp"

namespace gpunbd::server::admin {

namespace json = boost::json;

void Ticks::set(const Status& status) {
    using Busy =
        std::pair<std::uint64_t, const ConnectionStatus*>;  // with its requests in the last second
    std::vector<Busy> connections;
    std::map<std::uint64_t, std::uint64_t> requests;
    for (const ConnectionStatus& each : status.connections) {
        const auto before = requests_.find(each.id);
        connections.emplace_back(
            each.requests -
                (before == requests_.end() ? 0 : std::min(before->second, each.requests)),
            &each);
        requests.emplace(each.id, each.requests);
    }
    requests_ = std::move(requests);
    const std::size_t shown = std::min(max_connections, connections.size());
    const auto busier = [](const Busy& a, const Busy& b) {
        return std::tuple(b.first, b.second->in_flight, a.second->id) <
               std::tuple(a.first, a.second->in_flight, b.second->id);
    };
    // Stalled connections come first, although they are idle, and take at most half.
    const auto stalled_end = std::partition(connections.begin(), connections.end(),
                                            [](const Busy& a) { return a.second->stalled != 0; });
    const auto stalled = std::min(stalled_end - connections.begin(),
                                  static_cast<std::ptrdiff_t>(max_connections / 2));
    std::nth_element(
        connections.begin(), connections.begin() + stalled, stalled_end,
        [](const Busy& a, const Busy& b) { return a.second->stalled > b.second->stalled; });
    std::partial_sort(connections.begin() + stalled,
                      connections.begin() + static_cast<std::ptrdiff_t>(shown), connections.end(),
                      busier);
    json::array busiest;
    for (std::size_t i = 0; i != shown; ++i) busiest.push_back(encode(*connections[i].second));
    start_ = fmt::format(R"({{"status":{},"connections":{},"connections_left_out":{},"events":)",
                         json::serialize(encode(status)), json::serialize(busiest),
                         connections.size() - shown);
}

std::optional<std::string> Ticks::tick(std::uint64_t& seen) const {
    if (start_.empty()) return std::nullopt;
    const std::vector<EventStatus> events = events_.after(seen);
    if (!events.empty()) seen = events.back().id;
    // Serialized JSON has no newlines, which would end the event.
    return fmt::format("event: tick\ndata: {}{}}}\n\n", start_,
                       json::serialize(encode_all(events)));
}

}  // namespace gpunbd::server::admin

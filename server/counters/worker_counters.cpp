#include "server/counters/worker_counters.hpp"

#include <atomic>
#include <functional>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

std::uint64_t next_id() {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
}

constexpr std::size_t least_room = 16;

// Applies `copy` to each element, and adds the results. False: `out` has too little room.
template <typename Out, typename Map, typename Copy>
bool copy_if_room(const Map& map, std::vector<Out>& out, Copy copy) {
    if (map.size() > out.capacity()) return false;
    for (const auto& each : map) out.push_back(copy(each.second));
    return true;
}

// Calls `fill`, which takes the lock, with an empty vector of ever more room until it returns true.
template <typename Out, typename Fill>
std::vector<Out> fill_with_room(Fill fill) {
    std::vector<Out> out;
    for (std::size_t room = least_room;; room *= 2) {
        out.reserve(room);
        if (fill(out)) return out;
    }
}

}  // namespace

std::shared_ptr<ExportCounters> WorkerCounters::of_export(const std::string& name) {
    {
        const Lock lock(mutex_);
        const auto known = exports_.lower_bound(name);
        if (known != exports_.end() && known->first == name) return known->second.counters;
    }
    decltype(exports_) one;
    one.emplace(
        name, Named{std::make_shared<const std::string>(name), std::make_shared<ExportCounters>()});
    auto counters = one.begin()->second.counters;
    const Lock lock(mutex_);
    exports_.merge(one);
    return counters;
}

void WorkerCounters::rename(const std::string& from, const std::string& to) {
    const auto name = std::make_shared<const std::string>(to);
    std::string key = to;
    const Lock lock(mutex_);
    const auto known = exports_.lower_bound(from);
    if (known == exports_.end() || known->first != from) return;
    auto node = exports_.extract(known);
    node.key().swap(key);
    node.mapped().name = name;
    exports_.insert(exports_.lower_bound(to), std::move(node));
}

std::shared_ptr<ConnectionCounters> WorkerCounters::begin(ConnectionFacts facts) {
    const auto id = next_id();
    std::map<std::uint64_t, std::shared_ptr<ConnectionCounters>> one;
    one.emplace(id, std::make_shared<ConnectionCounters>(id, std::move(facts)));
    auto counters = one.begin()->second;
    const Lock lock(mutex_);
    connections_.merge(one);
    return counters;
}

void WorkerCounters::learn(ConnectionCounters& connection, ConnectionFacts facts) {
    auto next = std::make_shared<const ConnectionFacts>(std::move(facts));
    const Lock lock(mutex_);
    GPUNBD_ASSERT(connections_.contains(connection.id),
                  "facts are learned of a connection that has not ended");
    connection.facts.swap(next);
}

void WorkerCounters::end(const ConnectionCounters& connection) noexcept {
    decltype(connections_)::node_type gone;  // destroyed without the lock
    const Lock lock(mutex_);
    gone = connections_.extract(connection.id);
    GPUNBD_ASSERT(!gone.empty(), "the counters of a connection end once");
}

std::vector<WorkerCounters::OfExport> WorkerCounters::exports() const {
    const auto copy = [](const Named& each) { return OfExport{each.name, each.counters}; };
    return fill_with_room<OfExport>([&](std::vector<OfExport>& out) {
        const Lock lock(mutex_);
        return copy_if_room(exports_, out, copy);
    });
}

std::vector<WorkerCounters::Seen> WorkerCounters::connections() const {
    const auto copy = [](const auto& each) { return Seen{each, each->facts}; };
    return fill_with_room<Seen>([&](std::vector<Seen>& out) {
        const Lock lock(mutex_);
        return copy_if_room(connections_, out, copy);
    });
}

}  // namespace gpunbd::server

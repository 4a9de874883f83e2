#include "server/counters/worker_counters.hpp"

#include <atomic>
#include <functional>

namespace gpunbd::server {

namespace {

std::uint64_t next_id() {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
}

// Applies `copy` to each element. Room is allocated before the lock is taken.
template <typename Out, typename Map, typename Copy>
std::vector<Out> copied(std::mutex& mutex, const Map& map, Copy copy) {
    std::vector<Out> out;
    for (std::size_t wanted = 16;; wanted *= 2) {
        out.reserve(wanted);
        const std::lock_guard lock(mutex);
        if (map.size() > wanted) continue;
        for (const auto& each : map) out.push_back(copy(each.second));
        return out;
    }
}

}  // namespace

std::shared_ptr<ExportCounters> WorkerCounters::of_export(const std::string& name) {
    {
        const std::lock_guard lock(mutex_);
        const auto known = exports_.lower_bound(name);
        if (known != exports_.end() && known->first == name) return known->second.counters;
    }
    decltype(exports_) one;
    one.emplace(
        name, Named{std::make_shared<const std::string>(name), std::make_shared<ExportCounters>()});
    auto counters = one.begin()->second.counters;
    const std::lock_guard lock(mutex_);
    exports_.merge(one);
    return counters;
}

void WorkerCounters::rename(const std::string& from, const std::string& to) {
    const auto name = std::make_shared<const std::string>(to);
    std::string key = to;
    const std::lock_guard lock(mutex_);
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
    const std::lock_guard lock(mutex_);
    connections_.merge(one);
    return counters;
}

void WorkerCounters::learn(ConnectionCounters& connection, ConnectionFacts facts) {
    auto next = std::make_shared<const ConnectionFacts>(std::move(facts));
    const std::lock_guard lock(mutex_);
    connection.facts.swap(next);
}

void WorkerCounters::end(const ConnectionCounters& connection) noexcept {
    decltype(connections_)::node_type gone;  // destroyed without the lock
    const std::lock_guard lock(mutex_);
    gone = connections_.extract(connection.id);
}

std::vector<WorkerCounters::OfExport> WorkerCounters::exports() const {
    return copied<OfExport>(mutex_, exports_, [](const Named& each) {
        return OfExport{each.name, each.counters};
    });
}

std::vector<WorkerCounters::Seen> WorkerCounters::connections() const {
    return copied<Seen>(mutex_, connections_, [](const std::shared_ptr<ConnectionCounters>& each) {
        return Seen{each, each->facts};
    });
}

}  // namespace gpunbd::server

#include "server/admin/http/connection_pool.hpp"

#include <algorithm>
#include <map>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server::admin {

namespace {

std::size_t count_of(const std::set<Connection*>& connections, const std::string& client) {
    return static_cast<std::size_t>(
        std::count_if(connections.begin(), connections.end(),
                      [&](const Connection* each) { return each->client() == client; }));
}

std::string client_with_most(const std::set<Connection*>& connections) {
    std::map<std::string, std::size_t> counts;
    for (const Connection* const each : connections) ++counts[each->client()];
    GPUNBD_ASSERT(!counts.empty(), "the limit of connections is at least one");
    return std::max_element(counts.begin(), counts.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
}

}  // namespace

bool ConnectionPool::make_room(const std::string& client) {
    if (count_of(connections_, client) >= limits_.connections_of_client)
        return close_oldest(client);
    if (connections_.size() < limits_.connections) return true;
    return close_oldest(client_with_most(connections_));
}

bool ConnectionPool::add_stream(Connection& connection) {
    if (streams_.size() >= limits_.streams ||
        count_of(streams_, connection.client()) >= limits_.streams_of_client) {
        return false;
    }
    GPUNBD_ASSERT(!streams_.contains(&connection), "a connection has one stream");
    streams_.insert(&connection);
    return true;
}

// Streams and connections that wait for an outcome are not idle: they wait for the server.
bool ConnectionPool::close_oldest(const std::string& client) {
    Connection* oldest = nullptr;
    for (Connection* const each : connections_) {
        if (each->client() != client || !each->idle_since()) continue;
        if (oldest == nullptr || each->idle_since() < oldest->idle_since()) oldest = each;
    }
    if (oldest == nullptr) return false;
    oldest->close();
    connections_.erase(oldest);
    return true;
}

}  // namespace gpunbd::server::admin

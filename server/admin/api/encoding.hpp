// What a server tells, as JSON: the schemas of openapi.yaml.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <string_view>
#include <vector>

#include "server/admin/history/history.hpp"
#include "server/admin/observed_server.hpp"
#include "server/admin/status.hpp"

namespace gpunbd::server::admin {

boost::json::object encode(const Status& status);
boost::json::object encode(const DeviceStatus& device);
boost::json::object encode(const ExportStatus& exported);
boost::json::object encode(const ConnectionStatus& connection);
boost::json::object encode(const EventStatus& event);
boost::json::object encode(std::string_view name, const ExportMap& map);
boost::json::object encode(std::string_view name, const PageRuns& pages);
boost::json::object encode(std::string_view name, const History::OfExport& history);

template <class Item>
boost::json::array encode_all(const std::vector<Item>& items) {
    boost::json::array out;
    out.reserve(items.size());
    for (const Item& each : items) out.push_back(encode(each));
    return out;
}

}  // namespace gpunbd::server::admin

// The state of a server as JSON, by the schemas of openapi.yaml.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "server/admin/model/admin_backend.hpp"
#include "server/admin/model/history.hpp"
#include "server/admin/model/status.hpp"
#include "server/admin/model/structure.hpp"

namespace gpunbd::server::admin {

// Encodes the object of a status, which `structure` describes.
boost::json::object encode(const Structure& structure, const void* object);
template <Described Object>
boost::json::object encode(const Object& object) {
    return encode(Object::structure(), &object);
}
boost::json::object encode(const EventStatus& event);
boost::json::object encode(std::string_view name, const ExportMap& map);
boost::json::object encode(std::string_view name, const PageRuns& pages);
boost::json::object encode(std::string_view name, const History::Series& history);
// Byte counts by export name.
boost::json::object encode(const std::map<std::string, std::vector<std::uint64_t>>& trends,
                           double end);

template <class Item>
boost::json::array encode_all(const std::vector<Item>& items) {
    boost::json::array out;
    out.reserve(items.size());
    for (const Item& each : items) out.push_back(encode(each));
    return out;
}

}  // namespace gpunbd::server::admin

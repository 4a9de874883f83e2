#include "server/admin/http/message.hpp"

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "config/quote.hpp"

namespace gpunbd::server::admin {

Response error_response(unsigned status, std::string_view message) {
    boost::json::object object;
    object["error"] = config::repaired_utf8(message);
    return {.status = status, .body = boost::json::serialize(object)};
}

}  // namespace gpunbd::server::admin

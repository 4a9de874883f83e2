#include "server/admin/http/message.hpp"

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "config/quote.hpp"

namespace gpunbd::server::admin {

Answer refusal(unsigned status, std::string_view why) {
    boost::json::object object;
    object["error"] = config::repaired_utf8(why);
    return {.status = status, .body = boost::json::serialize(object)};
}

}  // namespace gpunbd::server::admin

#include "server/admin/model/event_sink.hpp"

#include <spdlog/details/log_msg.h>

#include <chrono>
#include <string>

#include "storage/base/log_line.hpp"

namespace gpunbd::server::admin {

void EventSink::log(const spdlog::details::log_msg& message) {
    const storage::LogParts parts = storage::parts_of(message);
    const spdlog::string_view_t level = spdlog::level::to_string_view(message.level);
    EventStatus event;
    event.time = std::chrono::duration<double>(message.time.time_since_epoch()).count();
    event.level.assign(level.data(), level.size());
    event.text = parts.text;
    event.fields = parts.fields.empty() ? "{}" : "{" + std::string(parts.fields.substr(1)) + "}";
    events_->add(std::move(event));
}

}  // namespace gpunbd::server::admin

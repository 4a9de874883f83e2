#include "server/admin/model/event_log.hpp"

#include <spdlog/details/log_msg.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "storage/base/log_line.hpp"

namespace gpunbd::server::admin {

void EventLog::add(EventStatus event) {
    if (event.text.size() > max_text) {
        event.text.resize(max_text);
        event.text += "...";
    }
    const Lock lock(mutex_);
    event.id = last_id_ + 1;
    events_.push_back(std::move(event));
    ++last_id_;
    if (events_.size() > max_events) events_.pop_front();
}

std::vector<EventStatus> EventLog::after(std::uint64_t id) const {
    const Lock lock(mutex_);
    if (id >= last_id_) return {};
    const std::uint64_t newer = std::min<std::uint64_t>(last_id_ - id, events_.size());
    return {events_.end() - static_cast<std::ptrdiff_t>(newer), events_.end()};
}

std::uint64_t EventLog::last_id() const {
    const Lock lock(mutex_);
    return last_id_;
}

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

#include "protocol/option_reply.hpp"

#include <span>

#include "protocol/bytes.hpp"
#include "protocol/constants.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::protocol {

void OptionReplies::header(OptionReply type, std::size_t length) {
    append_be(out_, option_reply_magic);
    append_be(out_, option_);
    append_be(out_, static_cast<std::uint32_t>(type));
    append_be(out_, static_cast<std::uint32_t>(length));
}

void OptionReplies::info(InfoType type, std::size_t length) {
    header(OptionReply::info, sizeof type + length);
    append_be(out_, static_cast<std::uint16_t>(type));
}

void OptionReplies::text(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    out_.insert(out_.end(), bytes.begin(), bytes.end());
}

void OptionReplies::ack() { header(OptionReply::ack, 0); }

void OptionReplies::error(OptionReply type, std::string_view message) {
    GPUNBD_ASSERT(message.size() <= max_string, "an error text is a string that a client accepts");
    header(type, message.size());
    text(message);
}

void OptionReplies::server(const ExportInfo& info) {
    GPUNBD_ASSERT(info.name.size() <= max_string && info.description.size() <= max_string,
                  "the texts of an export are strings that a client accepts");
    const auto name_length = static_cast<std::uint32_t>(info.name.size());
    header(OptionReply::server, sizeof name_length + info.name.size() + info.description.size());
    append_be(out_, name_length);
    text(info.name);
    text(info.description);
}

void OptionReplies::info_export(const ExportInfo& info, Headers headers) {
    const std::uint16_t flags = info.transmission_flags(headers);
    this->info(InfoType::export_, sizeof info.size + sizeof flags);
    append_be(out_, info.size);
    append_be(out_, flags);
}

void OptionReplies::info_name(const ExportInfo& info) {
    this->info(InfoType::name, info.name.size());
    text(info.name);
}

void OptionReplies::info_description(const ExportInfo& info) {
    this->info(InfoType::description, info.description.size());
    text(info.description);
}

void OptionReplies::info_block_size(const ExportInfo& info) {
    this->info(InfoType::block_size, sizeof info.minimum_block + sizeof info.preferred_block +
                                         sizeof info.maximum_payload);
    append_be(out_, info.minimum_block);
    append_be(out_, info.preferred_block);
    append_be(out_, info.maximum_payload);
}

void OptionReplies::meta_context(std::uint32_t id, std::string_view name) {
    header(OptionReply::meta_context, sizeof id + name.size());
    append_be(out_, id);
    text(name);
}

}  // namespace gpunbd::protocol

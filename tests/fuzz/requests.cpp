// Requests through the gate, and the replies to them. Commands must be in range, aligned and
// permitted, and replies must contain what the encoder was given.
#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "protocol/bytes.hpp"
#include "protocol/gate.hpp"
#include "protocol/reply_encoder.hpp"
#include "tests/fuzz/require.hpp"
#include "tests/fuzz/script.hpp"

namespace {

using namespace gpunbd::protocol;
using gpunbd::fuzz::require;
using gpunbd::fuzz::Script;

NegotiatedOptions negotiated_by(Script& script) {
    NegotiatedOptions negotiated;
    const std::uint32_t choices = script.byte();
    ExportInfo& info = negotiated.export_info;
    negotiated.headers = (choices & 1) == 0   ? Headers::simple
                         : (choices & 8) == 0 ? Headers::structured
                                              : Headers::extended;
    if ((choices & 3) == 3) negotiated.contexts = MetaContext::base_allocation;
    if ((choices & 0x13) == 0x13) negotiated.contexts.add(MetaContext::device);
    info.read_only = (choices & 4) != 0;
    info.minimum_block = 1U << (script.byte() % 13);
    info.size = std::uint64_t{script.word()} << (script.byte() % 48);
    info.size -= info.size % info.minimum_block;
    return negotiated;
}

bool permitted(const Command& command, const NegotiatedOptions& negotiated) {
    const ExportInfo& info = negotiated.export_info;
    switch (command.type) {
        case CommandType::write:
            return !info.read_only && command.length <= info.maximum_payload;
        case CommandType::trim:
        case CommandType::write_zeroes:
            return !info.read_only;
        case CommandType::read:
            return command.length <= info.maximum_payload;
        case CommandType::block_status:
            return !command.contexts.none() && command.length != 0;
        case CommandType::disc:
        case CommandType::flush:
            return command.offset == 0 && command.length == 0;
        case CommandType::cache:
            return true;
    }
    return false;
}

bool is_extended(const NegotiatedOptions& negotiated) {
    return negotiated.headers == Headers::extended;
}

// The payload length in the header of a chunk.
std::uint64_t payload_length(const std::byte* chunk, const NegotiatedOptions& negotiated) {
    return is_extended(negotiated) ? load_be<std::uint64_t>(chunk + 24)
                                   : load_be<std::uint32_t>(chunk + 16);
}

// Checks a complete reply of `size` bytes against the expected `error`.
void check_end(const ReplyHeader& header, std::size_t size, const Command& command, Error error,
               const NegotiatedOptions& negotiated) {
    const std::byte* const at = header.data();
    const std::uint64_t cookie = command.cookie;
    if (load_be<std::uint32_t>(at) == simple_reply_magic) {
        require(!is_extended(negotiated), "extended headers exclude simple replies");
        require(size == simple_reply_size, "a simple reply has 16 bytes");
        require(load_be<std::uint32_t>(at + 4) == static_cast<std::uint32_t>(error),
                "the error of a simple reply");
        require(load_be<std::uint64_t>(at + 8) == cookie, "the cookie of a simple reply");
        return;
    }
    const std::size_t header_size = chunk_header_size_of(negotiated.headers);
    require(load_be<std::uint32_t>(at) ==
                (is_extended(negotiated) ? extended_reply_magic : structured_reply_magic),
            "the magic number of a chunk");
    require(load_be<std::uint16_t>(at + 4) == chunk_flag_done, "the last chunk has DONE");
    require(load_be<std::uint64_t>(at + 8) == cookie, "the cookie of a chunk");
    require(size == header_size + payload_length(at, negotiated), "the length of a chunk");
    if (is_extended(negotiated)) {
        require(load_be<std::uint64_t>(at + 16) == command.offset, "the offset of the request");
    }
    const bool failed = (load_be<std::uint16_t>(at + 6) & 0x8000U) != 0;
    require(failed == (error != Error::none), "an error has an error chunk");
    if (failed) {
        require(load_be<std::uint32_t>(at + header_size) == static_cast<std::uint32_t>(error),
                "the error of an error chunk");
    }
}

void check_read(const ReplyEncoder& encoder, const Command& read,
                const NegotiatedOptions& negotiated) {
    ReplyHeader header{};
    const std::byte* const at = header.data();
    const auto length = static_cast<std::uint32_t>(read.length);
    if (length == 0) return;
    const std::size_t whole = encoder.whole(header, read);
    if (load_be<std::uint32_t>(at) == simple_reply_magic) {
        check_end(header, whole, read, Error::none, negotiated);
        return;
    }
    const std::size_t header_size = chunk_header_size_of(negotiated.headers);
    for (const bool hole : {false, true}) {
        if (hole) {
            require(encoder.hole(header, read, read.offset, length, true) == header_size + 12,
                    "a hole chunk has no data");
            require(payload_length(at, negotiated) == 12, "the payload length of a hole chunk");
            require(load_be<std::uint32_t>(at + header_size + 8) == length, "the length of a hole");
        } else {
            require(encoder.data(header, read, read.offset, length, true) == whole,
                    "data() and whole() agree");
            require(payload_length(at, negotiated) == 8 + length,
                    "the payload length of a data chunk");
        }
        require(load_be<std::uint64_t>(at + 8) == read.cookie, "the cookie of a chunk");
        require(load_be<std::uint64_t>(at + header_size) == read.offset, "the offset of a chunk");
    }
}

void check_command(const Command& command, const NegotiatedOptions& negotiated) {
    const ExportInfo& info = negotiated.export_info;
    require(command.offset <= info.size && command.length <= info.size - command.offset,
            "a command is in range");
    require(command.offset % info.minimum_block == 0 && command.length % info.minimum_block == 0,
            "a command is aligned");
    require(permitted(command, negotiated), "a command is permitted");
    const ReplyEncoder encoder(negotiated);
    ReplyHeader header{};
    check_end(header, encoder.success(header, command), command, Error::none, negotiated);
    const auto error = encoder.error(
        header,
        {.error = Error::eio, .cookie = command.cookie, .offset = command.offset, .text = "why"});
    check_end(header, error.header_length + error.text.size(), command, Error::eio, negotiated);
    if (command.type == CommandType::read) check_read(encoder, command, negotiated);
    if (command.type == CommandType::block_status) {
        std::vector<std::byte> out;
        const Extent extent{.length = command.length, .status = 3};
        encoder.block_status(out, command, MetaContext::base_allocation, {&extent, 1}, true);
        require(out.size() == (is_extended(negotiated) ? 32 + 8 + 16 : 20 + 4 + 8),
                "a BLOCK_STATUS reply has one extent");
        require(is_extended(negotiated) ? load_be<std::uint64_t>(out.data() + 40) == command.length
                                        : load_be<std::uint32_t>(out.data() + 24) == command.length,
                "the length of an extent");
    }
}

// Decodes a request, and checks that encoding it again gives the same bytes.
std::optional<Request> decoded(std::span<const std::byte> wire, Headers headers) {
    const bool extended = headers == Headers::extended;
    const auto request = decode_request(wire, headers);
    require(request.has_value() == (load_be<std::uint32_t>(wire.data()) ==
                                    (extended ? extended_request_magic : request_magic)),
            "a request is decoded if its magic number is right");
    if (request) {
        std::vector<std::byte> again(wire.size());
        if (extended) {
            encode_extended_request(*request, std::span(again).first<extended_request_size>());
        } else {
            encode_request(*request, std::span(again).first<request_size>());
        }
        require(std::equal(again.begin(), again.end(), wire.begin()),
                "encoding restores the bytes");
    }
    return request;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Script script(data, size);
    const NegotiatedOptions negotiated = negotiated_by(script);
    while (!script.over()) {
        const std::size_t header_size = request_size_of(negotiated.headers);
        const auto wire = script.bytes(header_size);
        if (wire.size() < header_size) return 0;
        const auto request = decoded(wire, negotiated.headers);
        if (!request) continue;
        Validated validated = validate(*request, negotiated);
        if (const auto* payload = std::get_if<StatusPayload>(&validated)) {
            require(payload->length <= max_status_payload, "a status payload is bounded");
            const auto content = script.bytes(payload->length);
            if (content.size() < payload->length) return 0;
            validated = validate_status(*request, content, negotiated);
            require(!std::holds_alternative<StatusPayload>(validated),
                    "a request has at most one status payload");
        }
        if (const auto* command = std::get_if<Command>(&validated)) {
            require(command->cookie == request->cookie, "the cookie of a command");
            check_command(*command, negotiated);
        } else if (const auto* refusal = std::get_if<Refusal>(&validated)) {
            require(refusal->cookie == request->cookie, "the cookie of a refusal");
            require(refusal->error != Error::none, "a refusal has an error");
            require(refusal->discard <= std::uint64_t{2} * max_payload,
                    "the discarded payload is bounded");
        }
    }
    return 0;
}

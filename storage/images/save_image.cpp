#include "storage/images/save_image.hpp"

#include <exception>
#include <string_view>

#include "storage/images/replaced_file.hpp"
#include "storage/images/volume_reader.hpp"
#include "storage/images/zstd_writer.hpp"

namespace gpunbd::storage {

namespace {

using Progress = std::function<void(std::uint64_t)>;

constexpr std::string_view compressed_suffix = ".zst";

class RawWriter final : public VolumeSink {
 public:
    explicit RawWriter(ReplacedFile& file) : file_(file) {}

    std::string hole(std::uint64_t length) override { return file_.skip(length); }
    std::string run(std::uint64_t /*length*/) override { return {}; }
    std::string data(const std::byte* from, std::uint64_t length) override {
        return from == nullptr ? file_.skip(length) : file_.append(from, length);
    }

 private:
    ReplacedFile& file_;
};

std::string save_to(ReplacedFile& file, Volume& volume, const ChannelOptions& channels,
                    const std::string& path, const ImageFormat& format, const std::stop_token& stop,
                    const Progress& progress) {
    VolumeReader reader(volume, channels);
    const std::uint64_t size = volume.size();
    if (!format.zstd && !path.ends_with(compressed_suffix)) {
        RawWriter writer(file);
        return reader.read(size, stop, writer, progress);
    }
    ZstdWriter writer(file, format.threads);
    std::string why = writer.begin(size);
    if (why.empty()) why = reader.read(size, stop, writer, progress);
    return why.empty() ? writer.end(size) : why;
}

}  // namespace

std::string save_image(Volume& volume, const ChannelOptions& channels, const std::string& path,
                       const ImageFormat& format, const std::stop_token& stop,
                       const Progress& progress) {
    try {
        ReplacedFile file(path);
        if (std::string why = file.create(); !why.empty()) return why;
        std::string why = save_to(file, volume, channels, path, format, stop, progress);
        return why.empty() ? file.publish() : why;
    } catch (const std::exception& error) {
        return error.what();
    }
}

}  // namespace gpunbd::storage

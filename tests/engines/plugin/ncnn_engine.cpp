// An engine with the few parts of ncnn that a custom layer meets: reference-counted Mats whose channels begin at multiples
// of 16 bytes, and a Net that makes layers by their type.  It runs the layer argv[1] on raw f32[c,h,w] (argv[2] the file,
// argv[3..5] the extents), and writes the outputs to argv[6..].
#include "ops.h"
#include "tilesmith_ncnn.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

namespace ncnn {

Mat::Mat() : data(0), refcount(0), elemsize(0), elempack(0), allocator(0), dims(0), w(0), h(0), d(0), c(0), cstep(0) {}
Mat::Mat(const Mat &m) : Mat() { *this = m; }
Mat::~Mat() {
    if (refcount && !--*refcount) {
        std::free(data);
        delete refcount;
    }
}
Mat &Mat::operator=(const Mat &m) {
    if (this != &m) {
        this->~Mat();
        if (m.refcount)
            ++*m.refcount;
        std::memcpy(static_cast<void *>(this), &m, sizeof m);
    }
    return *this;
}
static void make(Mat &m, int dims, int w, int h, int d, int c, std::size_t elemsize) {
    m = Mat();
    m.dims = dims, m.w = w, m.h = h, m.d = d, m.c = c, m.elemsize = elemsize, m.elempack = 1;
    const std::size_t plane = static_cast<std::size_t>(w) * h * d * elemsize;
    m.cstep = (dims < 3 ? plane : (plane + 15) / 16 * 16) / elemsize;
    m.data = std::malloc(m.cstep * elemsize * c);
    m.refcount = new int(1);
}
void Mat::create(int w, size_t e, Allocator *) { make(*this, 1, w, 1, 1, 1, e); }
void Mat::create(int w, int h, size_t e, Allocator *) { make(*this, 2, w, h, 1, 1, e); }
void Mat::create(int w, int h, int c, size_t e, Allocator *) { make(*this, 3, w, h, 1, c, e); }
void Mat::create(int w, int h, int d, int c, size_t e, Allocator *) { make(*this, 4, w, h, d, c, e); }
bool Mat::empty() const { return !data; }

Option::Option() : num_threads(2), blob_allocator(0), workspace_allocator(0) {}

Layer::Layer() : one_blob_only(false), support_inplace(false) {}
Layer::~Layer() {}
int Layer::create_pipeline(const Option &) { return 0; }
int Layer::destroy_pipeline(const Option &) { return 0; }
int Layer::forward(const std::vector<Mat> &, std::vector<Mat> &, const Option &) const { return -1; }
int Layer::forward(const Mat &, Mat &, const Option &) const { return -1; }

struct Entry {
    layer_creator_func creator;
    layer_destroyer_func destroyer;
    void *userdata;
};
static std::map<std::string, Entry> registered;
int Net::register_custom_layer(const char *type, layer_creator_func creator, layer_destroyer_func destroyer,
                               void *userdata) {
    registered[type] = {creator, destroyer, userdata};
    return 0;
}

} // namespace ncnn

int main(int argc, char **argv) {
    ncnn::Net net;
    ncnn::Option opt;
    if (argc < 7 || tilesmith_register_layers(net, ops_register) || !ncnn::registered.count(argv[1]))
        return 1;
    const ncnn::Entry &entry = ncnn::registered[argv[1]];
    ncnn::Layer *layer = entry.creator(entry.userdata);
    if (layer->create_pipeline(opt))
        return 2;
    std::vector<ncnn::Mat> in(1), out(static_cast<std::size_t>(argc - 6));
    in[0].create(std::atoi(argv[5]), std::atoi(argv[4]), std::atoi(argv[3]));
    std::FILE *file = std::fopen(argv[2], "rb");
    for (int c = 0; file && c < in[0].c; c++)
        if (std::fread(static_cast<float *>(in[0].data) + in[0].cstep * c, 4, in[0].w * in[0].h, file) == 0)
            return 3;
    std::fclose(file);
    if (layer->forward(in, out, opt))
        return 4;
    for (std::size_t o = 0; o < out.size(); o++) {
        const ncnn::Mat &m = out[o];
        file = std::fopen(argv[6 + o], "wb");
        for (int c = 0; c < m.c; c++)
            std::fwrite(static_cast<float *>(m.data) + m.cstep * c, 4, m.w * m.h, file);
        std::fclose(file);
        std::printf("%d %d %d %d\n", m.dims, m.c, m.h, m.w);
    }
    in[0].create(7, 5, 3, std::size_t(2)); // elements of two bytes
    if (layer->forward(in, out, opt) == 0)
        return 5;
    layer->destroy_pipeline(opt);
    entry.destroyer(layer, entry.userdata);
}

"""What the store sells: categories, kinds of products and the words their texts are made of."""

# ruff: noqa: E501 (tables read better with one row a line)

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shelf:
    """The products of one lowest category."""

    path: tuple[str, ...]
    """Category names from the top."""
    kinds: tuple[str, ...]
    extras: tuple[str, ...]
    """What a product's name may end with."""
    price: tuple[int, int]
    """Lowest and highest price in dollars."""
    aspects: tuple[str, ...]
    """What reviews talk about."""
    attributes: tuple[str, ...] = ()
    """Attributes besides colour and material, by their names in `VALUES`."""
    options: tuple[str, ...] = ()
    """What a customer chooses."""


def shelf(path: str, kinds: str, extras: str, price: tuple[int, int], aspects: str, attributes: str = "", options: str = "") -> Shelf:  # fmt: skip
    """A shelf from texts separated by `|`."""
    lists = [tuple(part.strip() for part in text.split("|") if part.strip()) for text in (path, kinds, extras, aspects, attributes, options)]  # fmt: skip
    return Shelf(lists[0], lists[1], lists[2], price, lists[3], lists[4], lists[5])


VALUES: dict[str, tuple[str, ...]] = {
    "Color": ("Black", "White", "Navy", "Forest Green", "Sand", "Rose", "Silver", "Teal", "Burgundy", "Graphite"),
    "Size": ("XS", "S", "M", "L", "XL"),
    "Shoe Size": ("7", "8", "9", "10", "11", "12"),
    "Capacity": ("32 GB", "64 GB", "128 GB", "256 GB", "512 GB", "1 TB", "2 TB"),
    "Volume": ("8 oz", "12 oz", "16 oz", "24 oz", "32 oz", "64 oz"),
    "Pack": ("1 pack", "2 pack", "4 pack", "6 pack", "12 pack"),
    "Power": ("18 W", "30 W", "45 W", "65 W", "100 W"),
    "Battery Life": ("12 hours", "20 hours", "30 hours", "40 hours", "60 hours"),
    "Connectivity": ("Bluetooth 5.3", "USB-C", "2.4 GHz wireless", "3.5 mm jack", "Wi-Fi 6"),
    "Screen Size": ("14 in", "16 in", "24 in", "27 in", "32 in"),
    "Scent": ("Unscented", "Lavender", "Citrus", "Cedar", "Vanilla", "Eucalyptus"),
    "Skin Type": ("All skin types", "Dry", "Oily", "Sensitive", "Combination"),
    "Age Range": ("0-2 years", "3-5 years", "6-8 years", "9-12 years", "13 years and up"),
    "Width": ("18 in", "24 in", "36 in", "48 in", "60 in"),
    "Assembly": ("None required", "10 minutes", "30 minutes", "Two people, one hour"),
    "Flavor": ("Original", "Sea Salt", "Dark Chocolate", "Maple", "Chili Lime", "Honey"),
    "Thickness": ("4 mm", "6 mm", "8 mm", "10 mm"),
    "Weight": ("5 lb", "10 lb", "15 lb", "20 lb", "25 lb"),
    "Pet Size": ("Small", "Medium", "Large", "Extra Large"),
}  # fmt: skip

MATERIALS: dict[str, tuple[str, ...]] = {
    "Electronics": ("Recycled plastic", "Brushed aluminum", "ABS plastic", "Magnesium alloy"),
    "Cell Phones & Accessories": ("Silicone", "Polycarbonate", "Vegan leather", "Recycled plastic"),
    "Home & Kitchen": ("Stainless steel", "Ceramic", "Bamboo", "Cotton", "Walnut"),
    "Clothing, Shoes & Jewelry": ("Organic cotton", "Merino wool", "Recycled polyester", "Linen", "Nylon"),
    "Sports & Outdoors": ("Ripstop nylon", "Natural rubber", "Stainless steel", "Aluminum"),
    "Toys & Games": ("Beech wood", "Recycled plastic", "Cardboard"),
    "Office Products": ("Oak veneer", "Powder-coated steel", "Recycled plastic", "Bamboo"),
}
"""Materials by top category; what is eaten or used up has none, and no color."""

SHELVES: tuple[Shelf, ...] = (
    shelf("Electronics|Headphones|Over-Ear Headphones", "Wireless Over-Ear Headphones|Noise Cancelling Headphones|Studio Monitor Headphones", "with Travel Case|with Detachable Mic|with Low Latency Mode", (39, 349), "sound quality|battery life|comfort|noise cancelling|build quality", "Battery Life|Connectivity", "Color"),
    shelf("Electronics|Headphones|Earbuds", "True Wireless Earbuds|Sport Earbuds|Kids Earbuds", "with Charging Case|with Ear Hooks|with Four Microphones", (19, 229), "fit|sound quality|battery life|call quality|charging case", "Battery Life|Connectivity", "Color"),
    shelf("Electronics|Computers|Storage", "Portable SSD|USB Flash Drive|microSD Card|Desktop Hard Drive", "with USB-C Cable|with Shock Protection|for Cameras and Drones", (12, 189), "transfer speed|capacity|size|reliability|cooling", "Capacity|Connectivity", ""),
    shelf("Electronics|Computers|Monitors", "4K Monitor|Curved Gaming Monitor|Portable Monitor", "with Height Adjustable Stand|with USB-C Charging|with Built-In Speakers", (119, 699), "picture quality|stand|color accuracy|brightness|ports", "Screen Size", ""),
    shelf("Electronics|Computers|Keyboards and Mice", "Mechanical Keyboard|Wireless Mouse|Ergonomic Keyboard|Vertical Mouse", "with Quiet Switches|with Backlight|with Wrist Rest", (19, 159), "key feel|noise level|wrist comfort|battery life|software", "Connectivity", "Color"),
    shelf("Electronics|Smart Home", "Smart Plug|Video Doorbell|LED Light Strip|Smart Thermostat", "with Voice Control|with Energy Meter|with Two Year Warranty", (14, 199), "setup|app|reliability|range|privacy settings", "Connectivity|Pack", ""),
    shelf("Cell Phones & Accessories|Cases", "Clear Phone Case|Leather Wallet Case|Rugged Phone Case|Slim Phone Case", "with Magnetic Ring|with Card Holder|with Kickstand", (9, 59), "grip|drop protection|looks|fit|clear finish", "", "Color"),
    shelf("Cell Phones & Accessories|Chargers", "USB-C Wall Charger|Wireless Charging Pad|Car Charger|Power Bank", "with Folding Plug|with Two Ports|with Braided Cable", (13, 89), "charging speed|cooling|cable length|size|build quality", "Power|Connectivity", "Color"),
    shelf("Cell Phones & Accessories|Screen Protectors", "Tempered Glass Screen Protector|Privacy Screen Protector|Matte Screen Protector", "with Alignment Frame|with Camera Cover|with Cleaning Kit", (7, 29), "installation|clarity|scratch resistance|edge fit|fingerprint resistance", "Pack", ""),
    shelf("Home & Kitchen|Cookware|Pans", "Nonstick Frying Pan|Cast Iron Skillet|Carbon Steel Wok", "with Glass Lid|with Helper Handle|for Induction Cooktops", (19, 139), "heat distribution|handle|nonstick coating|weight|cleaning", "", ""),
    shelf("Home & Kitchen|Cookware|Knives", "Chef Knife|Bread Knife|Knife Block Set|Paring Knife", "with Walnut Handle|with Sheath|with Sharpener", (14, 189), "sharpness|balance|handle|edge retention|rust protection", "", ""),
    shelf("Home & Kitchen|Coffee", "Pour Over Coffee Maker|Burr Coffee Grinder|Milk Frother|Cold Brew Pitcher", "with Reusable Filter|with 18 Settings|with Glass Carafe", (16, 179), "taste|noise level|cleaning|consistency|size", "Volume", "Color"),
    shelf("Home & Kitchen|Bedding|Sheets", "Linen Sheet Set|Bamboo Sheet Set|Percale Sheet Set", "with Deep Pockets|with Four Pillowcases|for Hot Sleepers", (39, 189), "softness|fit|easy care|color|durability after washing", "", "Color"),
    shelf("Home & Kitchen|Bedding|Pillows", "Memory Foam Pillow|Down Alternative Pillow|Cooling Pillow", "with Washable Cover|for Side Sleepers|with Adjustable Fill", (19, 99), "support|scent|temperature|height|cover", "Pack", ""),
    shelf("Clothing, Shoes & Jewelry|Women|Tops", "Linen Shirt|Ribbed Tank Top|Oversized Hoodie|Merino Sweater", "with Side Pockets|in a Relaxed Fit|with Long Sleeves", (18, 119), "fit|fabric|color|length|shape after washing", "", "Size|Color"),
    shelf("Clothing, Shoes & Jewelry|Women|Activewear", "High Waist Leggings|Sports Bra|Running Shorts", "with Phone Pocket|with Mesh Panels|for Warm Days", (16, 89), "support|stretch|seams|sweat wicking|size", "", "Size|Color"),
    shelf("Clothing, Shoes & Jewelry|Men|Jackets", "Rain Jacket|Quilted Vest|Fleece Jacket|Denim Jacket", "with Packable Hood|with Inner Pocket|with Sherpa Lining", (39, 219), "warmth|zipper|fit|water resistance|pockets", "", "Size|Color"),
    shelf("Clothing, Shoes & Jewelry|Men|Shirts", "Oxford Shirt|Flannel Shirt|Performance Polo|Crew Neck Tee", "in a Slim Fit|with Button-Down Collar|with UV Protection", (14, 89), "fit|fabric|collar|easy care|color", "", "Size|Color"),
    shelf("Clothing, Shoes & Jewelry|Shoes", "Trail Running Shoes|Slide Sandals|Canvas Sneakers|Waterproof Hiking Boots", "with Wide Toe Box|with Arch Support|with Grippy Sole", (24, 189), "comfort|arch support|grip|break-in comfort|width", "", "Shoe Size|Color"),
    shelf("Beauty & Personal Care|Skin Care|Moisturizers", "Daily Face Moisturizer|Night Cream|Gel Moisturizer", "with Hyaluronic Acid|with SPF 30|with Ceramides", (11, 68), "texture|scent|absorption|skin feel|pump", "Volume|Skin Type", ""),
    shelf("Beauty & Personal Care|Skin Care|Cleansers", "Foaming Face Wash|Cleansing Balm|Micellar Water", "with Green Tea|for Sensitive Skin|with Salicylic Acid", (8, 42), "rinse|scent|mildness|makeup removal|value", "Volume|Skin Type", "Scent"),
    shelf("Beauty & Personal Care|Hair Care", "Repair Shampoo|Leave-In Conditioner|Ionic Hair Dryer|Detangling Brush", "with Argan Oil|for Curly Hair|with Diffuser", (9, 129), "shine|scent|frizz control|noise level|value", "Volume", "Scent"),
    shelf("Beauty & Personal Care|Oral Care", "Electric Toothbrush|Replacement Brush Heads|Water Flosser|Whitening Strips", "with Pressure Sensor|for Children|with Travel Case", (9, 119), "cleaning|noise level|battery life|gum comfort|charger", "Pack", "Color"),
    shelf("Sports & Outdoors|Fitness|Yoga", "Yoga Mat|Cork Yoga Block|Yoga Wheel", "with Carrying Strap|with Alignment Lines|for Hot Yoga", (12, 98), "grip|cushioning|scent|weight|thickness", "Thickness", "Color"),
    shelf("Sports & Outdoors|Fitness|Weights", "Adjustable Dumbbell|Kettlebell|Resistance Band Set", "with Storage Rack|with Rubber Coating|with Door Anchor", (14, 249), "grip|noise level|balance|coating|value", "Weight", ""),
    shelf("Sports & Outdoors|Camping", "Two Person Tent|Down Sleeping Bag|Camping Lantern|Folding Camp Chair", "with Rainfly|with Compression Sack|with Cup Holder", (22, 329), "weight|setup|warmth|water resistance|packed size", "", "Color"),
    shelf("Sports & Outdoors|Bottles & Coolers", "Insulated Water Bottle|Soft Cooler|Travel Tumbler", "with Straw Lid|with Shoulder Strap|with Leakproof Cap", (14, 129), "seal|ice retention|lid|taste|cup holder fit", "Volume", "Color"),
    shelf("Toys & Games|Building Toys", "Magnetic Tile Set|Wooden Block Set|Marble Run", "with 120 Pieces|with Storage Bin|with Idea Book", (19, 119), "magnets|variety|durability|noise level|instructions", "Age Range", ""),
    shelf("Toys & Games|Board Games", "Cooperative Board Game|Word Game|Strategy Board Game", "for Family Night|with Solo Mode|for Two to Five Players", (14, 69), "rules|replay value|components|length|fun for kids", "Age Range", ""),
    shelf("Toys & Games|Video Games", "Wireless Game Controller|Game Card Storage Case|Gaming Headset", "with Rear Buttons|for 24 Game Cards|with Surround Sound", (15, 129), "stick feel|battery life|grip|storage space|build quality", "Connectivity", "Color"),
    shelf("Office Products|Furniture", "Standing Desk|Ergonomic Office Chair|Monitor Riser|Filing Cabinet", "with Cable Tray|with Lumbar Support|with Lockable Drawer", (34, 499), "stability|assembly|comfort|finish|noise level", "Width|Assembly", "Color"),
    shelf("Office Products|Writing", "Gel Pen Set|Dotted Notebook|Mechanical Pencil|Dry Erase Markers", "with Fine Tip|with Numbered Pages|in Assorted Colors", (6, 39), "smudge resistance|paper quality|ink flow|grip|value", "Pack", ""),
    shelf("Office Products|Organizers", "Desk Organizer|Cable Management Box|Document Tray|Label Maker", "with Drawer|with Three Tiers|with Clear Cover", (9, 69), "size|sturdiness|looks|assembly|value", "Width", "Color"),
    shelf("Grocery & Gourmet Food|Snacks", "Roasted Almonds|Granola Clusters|Dried Mango|Kettle Chips", "in Resealable Bags|with No Added Sugar|Variety Box", (6, 44), "taste|freshness|crunch|packaging|seasoning", "Pack", "Flavor"),
    shelf("Grocery & Gourmet Food|Coffee & Tea", "Whole Bean Coffee|Earl Grey Tea|Matcha Powder|Decaf Espresso Pods", "Medium Roast|from Small Farms|with Compostable Packaging", (8, 49), "aroma|taste|freshness|balance|packaging", "Pack", "Flavor"),
    shelf("Grocery & Gourmet Food|Pantry", "Extra Virgin Olive Oil|Wildflower Honey|Tomato Sauce|Brown Rice Pasta", "Family Size|in a Glass Jar|Single Origin", (5, 39), "taste|freshness|packaging|texture|value", "Volume", ""),
)  # fmt: skip

BRANDS = (
    "Norvik", "Alderon", "Quillo", "Brightmoor", "Tavira", "Kestrel & Co", "Lumora", "Oakbend", "Zephyrine", "Halden",
    "Marisol Lane", "Fenwick", "Ridgepeak", "Solvane", "Cobalt Row", "Ember & Ash", "Tidewell", "Juniper Field",
    "Vantor", "Plainsmith", "Arcadel", "Mossgate", "Pell & Dray", "Sunhollow", "Orvane", "Birchline", "Castella",
    "Dovetail", "Northfold", "Hazelbrook", "Veritone", "Wildcrest", "Larkspur", "Stonewick", "Pomelo", "Trellis",
    "Calloway", "Indigo Post", "Rookery", "Maplewright", "Auberly", "Gantry", "Havelin", "Sable Point", "Corvina",
    "Westerly", "Tamarin", "Bellwether",
)  # fmt: skip
SERIES = ("Aero", "Core", "Nova", "Pulse", "Trail", "Luna", "Atlas", "Everyday", "Prime", "Drift", "Summit", "Harbor", "Studio", "Terra", "Echo", "Flow")  # fmt: skip

PURPOSES = ("everyday use", "small apartments", "long trips", "busy mornings", "weekend projects", "a first set-up", "gifts", "people who hate clutter")  # fmt: skip
PROMISES = (
    "We test every batch before it ships, and the first year is covered by our guarantee.",
    "The packaging is plastic free and fits through a standard mailbox where possible.",
    "Spare parts are available, so one worn piece does not mean a new purchase.",
    "It arrives ready to use, with a short printed guide in English and Spanish.",
    "Our customers asked for fewer features that work better, and that is what this is.",
    "It was redesigned this year after more than two hundred comments from buyers.",
)
PRAISE = ("The {aspect} is better than I expected", "I am really happy with the {aspect}", "Great {aspect}", "The {aspect} alone is worth the price", "What stands out is the {aspect}")  # fmt: skip
BLAME = ("The {aspect} is disappointing", "I had problems with the {aspect}", "The {aspect} could be much better", "Poor {aspect}", "Be aware that the {aspect} is not what the photos suggest")  # fmt: skip
GOOD_ENDINGS = ("I would buy it again.", "My sister has ordered one too.", "Delivery was quick as well.", "Still like new after three months.", "Recommended without hesitation.", "Exactly as described.", "It replaced a much more expensive one.")  # fmt: skip
MIXED_ENDINGS = ("For the price it is okay.", "I kept it, but I would look around first.", "It does the job, nothing more.", "Average, but the return policy is fair.")  # fmt: skip
BAD_ENDINGS = ("It broke after three days of use.", "I sent it back and am waiting for the refund.", "I will not order this again.", "Customer service offered a coupon, but that does not fix it.", "Save your money.")  # fmt: skip
TITLES = {
    5: (
        "Love it",
        "Worth every cent",
        "Exceeded expectations",
        "My new favorite",
        "Perfect {kind}",
        "Five stars from me",
    ),
    4: ("Very good {kind}", "Nearly perfect", "Solid choice", "Good value", "Happy with it"),
    3: ("It is okay", "Mixed feelings", "Decent {kind}, some flaws", "Average"),
    2: ("Not what I hoped for", "Disappointed", "Expected more", "Meh"),
    1: ("Broke quickly", "Do not buy", "Waste of money", "Very poor quality", "Returned it"),
}
SEARCHES = ("gift", "wireless", "kids", "bamboo", "usb-c", "sale", "travel case", "hoodie", "olive oil", "standing desk", "yoga mat", "knife", "tent", "phone case", "ssd", "leggings", "shampoo")  # fmt: skip

PAGES = (
    ("home", "Home Page", "Everything for the home, the desk and the trail, in one place."),
    ("about-us", "About Us", "One Stop Market began as a market stall and is still run by people who answer their own mail. We ship from two warehouses, on weekdays before noon."),
    ("customer-service", "Customer Service", "Call us on 555-0142, Monday to Friday, 8 am to 6 pm, or write through the contact form. Orders may be canceled until they are packed. Returns are free for 30 days after delivery."),
    ("privacy-policy", "Privacy and Cookie Policy", "We keep what we need to send your order: your name, addresses and past orders. We sell nothing of it. One cookie remembers that you are logged in."),
    ("shipping", "Shipping and Delivery", "Standard delivery takes three to five working days. Express delivery arrives on the next working day if you order before noon. Orders over $150 ship free by standard delivery."),
)  # fmt: skip
"""Written pages: the last part of the address, title, text."""

RULE_COLUMNS = ("name", "description", "active", "customer_group", "coupon", "action", "amount", "minimum", "from_date", "to_date")  # fmt: skip


def rules(welcome: int, spring: int, wholesale: int, number: int) -> list[dict[str, str | int]]:
    """The price rules that a store begins with, as rows."""
    rows: tuple[tuple[str | int, ...], ...] = (
        ("Welcome discount", "For a first order.", 1, "All", f"WELCOME{welcome}", "by_percent", welcome, 0, "", ""),
        (f"${spring} off large orders", "Orders of $200 and more.", 1, "All", f"SAVE{spring}", "cart_fixed", spring * 100, 20_000, "", ""),
        ("Wholesale discount", "For wholesale customers.", 1, "Wholesale", "", "by_percent", wholesale, 0, "", ""),
        ("Spring sale", "Over since May.", 0, "All", "SPRING", "by_percent", 10, 0, "2026-03-20", "2026-05-01"),
        ("Newsletter thank you", "Sent to subscribers.", 1, "All", f"THANKS{number}", "cart_fixed", 500, 2_500, "2026-01-01", ""),
    )  # fmt: skip
    return [dict(zip(RULE_COLUMNS, row, strict=True)) for row in rows]
